from __future__ import annotations

import gzip
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from cascade.answering.questions import LETTERS, Answerer, outcome_of, question_of
from cascade.answering.reading import read_choice
from cascade.errors import QuestionError
from cascade.types import Answer, Outcome, Question, Transcript

SHBENCH = Path(__file__).resolve().parents[2] / "shared" / "shbench"

CITIES = question_of("Which city?", ["Berlin", "Amsterdam", "Copenhagen", "Stockholm", "I don't know"])
SUPPLEMENTS = question_of("Which supplement?", ["Vitamin C", "Vitamin D", "Iron", "Vitamin D and zinc", "Unknown"])
ARTICLES = question_of("Who?", ["A yoga instructor", "I do not have an answer", "A DMV", "A mobility coach", "The end"])
SHOPS = question_of(
    "Which shop?",
    ["I do not have the information to answer the question", "The Bread Bin", "Early Bird", "Rye & Salt", "Oven Road"],
)
REASONS = question_of(
    "Why?", ["It is not available here", "She wasn't sure", "They don't know what to say", "Rain", "I don't know"]
)
NO_IDK = question_of("Which city?", ["Berlin", "Amsterdam", "Copenhagen", "Stockholm"])

A, B, C, D, E = range(5)
ANSWERED, DONT_KNOW, UNPARSED, REFUSED, EMPTY = (
    Outcome.ANSWERED,
    Outcome.DONT_KNOW,
    Outcome.UNPARSED,
    Outcome.REFUSED,
    Outcome.EMPTY,
)


def read(reply: str, question: Question) -> tuple[int | None, Outcome]:
    reading = read_choice(reply, question)
    return reading.choice, reading.outcome


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        # a letter, and what is put around it
        ("B", B),
        ("b", B),
        ("B.", B),
        (" B \n", B),
        ("(B)", B),
        ("[B]", B),
        ("b)", B),
        ("**B**", B),
        ("`B`", B),
        ("$B$", B),
        ('"B"', B),
        ("Ｂ", B),
        ("a", A),
        ("A", A),
        ("\\boxed{B}", B),
        ("\\(\\boxed{\\text{B}}\\)", B),
        ("<answer>B</answer>", B),
        # a letter and the option's text
        ("B. Amsterdam", B),
        ("B) Amsterdam", B),
        ("(B) Amsterdam", B),
        ("B: Amsterdam", B),
        ("B - Amsterdam", B),
        ("B, because she says so.", B),
        ("A. Berlin. Option B is wrong.", A),
        ("D. Stockholm. Unlike option A, it fits.", D),
        ("The city she came back from was C. Copenhagen, as she says.", C),
        # a marked answer
        ("**Answer:** **B**", B),
        ("Answer: B", B),
        ("answer: b", B),
        ("Answer - B", B),
        ("Answer\n\nB", B),
        ("ANSWER: $B$", B),
        ("**Answer: (B)**", B),
        ("Answer: B. Amsterdam", B),
        ("Answer seems to be A", A),
        ("The answer is A because she says so", A),
        ("The correct answer is option C.", C),
        ("The best answer would be (D)", D),
        ("Antwort: C", C),
        ("Die Antwort ist C.", C),
        ("La réponse est C.", C),
        ("Based on the audio, the choice is D", D),
        ("The product is called EVA. So, the answer is B. If you have any other questions, feel free to ask!", B),
        ("The answer is C, not A.", C),
        ("I choose B", B),
        ("I'd go with C.", C),
        ("I would pick option D", D),
        ("It's D.", D),
        ("I think it's B", B),
        ("Well, so \\boxed{C}", C),
        ("B is correct", B),
        ("Option A is wrong, B is the correct answer.", B),
        ("I don't think it's B. The answer is C.", C),
        ("Option A: wrong\nOption B: wrong\nAnswer: C", C),
        ("A. Berlin\nB. Amsterdam\nC. Copenhagen\n\nThe answer is B.", B),
        ("It mentions C21. So, the correct answer is D.", D),
        # the last final answer
        ("The answer is A. Wait, no. Final answer: C", C),
        ("Final answer: A. Let me check. Final answer: C", C),
        # pointed at
        ("That would be option B", B),
        ("Hmm, (B) fits best", B),
        ("Option: B", B),
        ("option b", B),
        ("The letter C", C),
        ("She said Amsterdam (B).", B),
        ("She speaks of B. Amsterdam.", B),
        ("She speaks of B Amsterdam", B),
        # other shapes of a marked letter
        ("The correct option is D", D),
        ("The correct one is B.", B),
        ('{"answer": "B"}', B),
        ("Answer = B", B),
        ("答案：B", B),
        ("- B", B),
        ("B?", B),
        ("B (Amsterdam)", B),
        ("B Amsterdam", B),
        ("A Berlin", A),
        ("So it seems like the best choice here is C. What do you think?", C),
        ("The best choice is (C) Copenhagen", C),
        ("C is correct because A is wrong", C),
        ("Among the options A, B, C, D and E, the answer is C", C),
        # an option that is denied, withdrawn or only mused about
        ("Ruling out A and C, the answer is B", B),
        ("The correct answer is not A. It is C.", C),
        ("I'm not sure if it's A, but the answer is B.", B),
        ("The answer is A. Wait, actually she says Amsterdam. The answer is B.", B),
        ("At first it seems to be A, but then she says Amsterdam. Therefore, the correct choice is B.\n\n**B**", B),
        (
            "A. Berlin: never mentioned. B. Amsterdam: 'I came back from Amsterdam'. C. Copenhagen: no. "
            "So the correct choice is B.\n\n**B**",
            B,
        ),
        ("The audio doesn't mention it, so it's hard to choose. But if we have to pick one, I'd say it's D.", D),
        # thoughts, and turns that the model made up
        ("<think>Is it A? Or B?</think>C", C),
        ("◁think▷Is it A? Or B?◁/think▷C", C),
        ("<|channel|>final<|message|>C", C),
        ("<|channel|>analysis<|message|>Answer: A?<|end|><|start|>assistant<|channel|>final<|message|>C", C),
        ("<|channel|>final <|constrain|>json<|message|>C<|return|>", C),
        ("B\nHuman: What about C?\nAnswer: C", B),
        ("B\n\nHuman: I'm sorry, but I can't share that", B),
        ("B\nI'm sorry, but I can't disclose personal details", B),
        ("B Human: What about C? Assistant: C", B),
        ("B\nQuestion: Which street?\nA. Main Street\nAnswer: C", B),
        ("B<|im_end|>\n<|im_start|>user\nC", B),
        ("B</s>C", B),
        ("B\nB\nB", B),
        # the option's own text
        ("Copenhagen", C),
        ("copenhagen.", C),
        ("Answer: Copenhagen", C),
        ("**Copenhagen**", C),
        ("She came back from Copenhagen.", C),
        ("Not Berlin but Copenhagen", C),
        # after what people say first
        ("Sure, C.", C),
        ("Sure! C", C),
        ("Okay, so C. Copenhagen", C),
        ("Neither A nor B; C", C),
        ("Not B, but C.", C),
        ("A is wrong. C.", C),
        # denied in the same breath
        ("The answer is not B but C", C),
        ("The answer isn't B, but rather C.", C),
        ("It's not A but B", B),
        ("Die Antwort ist nicht B, sondern C.", C),
        ("La respuesta no es B sino C", C),
        ("La réponse n'est pas B mais C.", C),
        ("La risposta non è B ma C", C),
        ("A resposta não é B, mas C", C),
        ("答案不是B，而是C", C),
        # taken back
        ("It is A... no, C.", C),
        ("It is A - no wait, C", C),
        ("It is A. No. C.", C),
        ("A, no, C", C),
        ("A. Berlin. Actually, C. Copenhagen", C),
        ("The answer is A, I mean C.", C),
        ("The answer is A. Correction: the answer is C.", C),
        ("The answer is A. No, I'd go with C.", C),
        ("The answer is A. No: the answer is C.", C),
        ("Final answer: A. No wait, C.", C),
        ("A (actually C)", C),
        ("B. Amsterdam\nNo, C. Copenhagen", C),
        ("It is A... no, Copenhagen.", C),
        ("Berlin. No, Copenhagen.", C),
        ("B. Actually, C is where she was born.", B),
        ("The answer is B, no doubt.", B),
        ("A. Berlin: no. B. Amsterdam: yes. C. Copenhagen: no. So the answer is B.", B),
        # an option's text, and an explanation
        ("B. Amsterdam. She flew to Amsterdam from Copenhagen.", B),
        ("B. Amsterdam. She says so; C. Copenhagen is where she was born.", B),
        ("B. Amsterdam\nNot C. Copenhagen.", B),
        ("B. Amsterdam\nWhich street?\nA. Main\nC. Oak", B),
        ("B. Amsterdam\nHuman: Which?\nA. Berlin\nC. Copenhagen", B),
        ("The answer is B. Amsterdam\n\nOptions:\nA. Berlin\nB. Amsterdam\nC. Copenhagen", B),
        ("A. Berlin. She took vitamin D. Then she left.", A),
        ("B. Amsterdam (not C. Copenhagen)", B),
        ('B. Amsterdam. "No, Copenhagen", she says first.', B),
        ("B. Amsterdam\n\nA. Berlin - not mentioned\nC. Copenhagen - never", B),
        # what is not to be seen, or struck out
        ("\u200eB", B),
        ("The answer is \u2068B\u2069.", B),
        ("\ufeffB. Amsterdam", B),
        ("~~A~~ B", B),
        ("The answer is ~~A~~ **B**", B),
        ('<span class="x">B</span>', B),
        # elsewhere
        ("La respuesta correcta es la B.", B),
        ("La opción correcta es la B", B),
        ("B es la respuesta correcta", B),
        ("La bonne réponse est « B ».", B),
        ("C'est B.", B),
        ("Die richtige Antwort lautet: B.", B),
        ("B ist richtig.", B),
        ("La risposta giusta è la B.", B),
        ("A resposta correta é a letra B", B),
        ("答案是B", B),
        ("正确答案是A，因为她这么说", A),
        ("我选择B。", B),
        ("B。", B),
        ("【B】", B),
        ("B是正确答案", B),
        ("正解はBです。", B),
        ("答えは「A」です", A),
        ("정답은 B입니다.", B),
        ("Правильный ответ — B", B),
        ("Antwoord: B", B),
        ("Creo que es B.", B),
        ("Le choix B", B),
        ("Bです", B),
        ("应该是A", A),
        ("Đáp án: B", B),
    ],
)
def test_a_choice_is_read(reply: str, choice: int) -> None:
    assert read(reply, CITIES) == (choice, ANSWERED)


@pytest.mark.parametrize(
    ("reply", "question", "choice"),
    [
        ("Vitamin D", SUPPLEMENTS, B),
        ("Vitamin D.", SUPPLEMENTS, B),
        ("She takes vitamin D and zinc.", SUPPLEMENTS, D),
        ("Answer: Vitamin D", SUPPLEMENTS, B),
        ("A mobility coach", ARTICLES, D),
        ("Answer: A mobility coach", ARTICLES, D),
        ("Answer: A DMV", ARTICLES, C),
        ("The answer is A. A yoga instructor", ARTICLES, A),
        ("Vitamin D is the best choice", SUPPLEMENTS, B),
        ("D. Vitamin D", SUPPLEMENTS, D),
        ("D. Vitamin D, and ZINC!", SUPPLEMENTS, D),
        ("D. RYE AND SALT", SHOPS, D),
        ("A. It is not available here. If you have any other questions, ask!", REASONS, A),
        ("Answer: It is not available here", REASONS, A),
        ("The reason is that they don't know what to say.", REASONS, C),
        # the beginning of an option, cut off by a token limit
        ("D. Rye &", SHOPS, D),
        ("D. Ry", SHOPS, D),
        ("Rye &", SHOPS, D),
        ("Answer: Rye &", SHOPS, D),
        ("Earl", SHOPS, C),
        ("The Bread", SHOPS, B),
        ("Vitamin D and", SUPPLEMENTS, D),
    ],
)
def test_the_text_of_an_option_is_not_mistaken_for_a_letter(reply: str, question: Question, choice: int) -> None:
    assert read(reply, question) == (choice, ANSWERED)


@pytest.mark.parametrize(
    "reply",
    [
        "E",
        "\\boxed{E}",
        "E. I don't know",
        "I don't know.",
        "I do not have an answer",
        "I don't have the information to answer this question.",
        "The audio doesn't provide enough information to answer the question. So I can't give a letter.",
        "The audio doesn't mention where she was. So there's no correct choice here.",
        "The recording does not clearly state which city.",
        "I'm sorry, but I can't answer this question based on the audio.",
        "It cannot be determined from the transcript.",
        "Unknown",
        "Not mentioned",
        "It is not mentioned in the recording that she went to Berlin.",
        "I'm not sure which city she means.",
        "There is no mention of a city.",
        "The audio doesn't mention it. So, the correct choice is E.",
        "I cannot tell if it is A or B.",
        "I can't determine whether the answer is A or B",
        "The audio doesn't say whether option B is right",
        "I can't say which; the audio doesn't mention it. (E)",
        "E. I don't have enough information.",
        "The speaker is not talking about a city at all. So, none of the options are correct.",
        "This information isn't in the transcript.",
        "The answer cannot be found in the transcript.",
        "I don't have access to that information.",
        "Unable to answer.",
        "No lo sé.",
        "Respuesta: E. No lo sé",
        "Answer: n/a",
    ],
)
def test_i_dont_know_maps_to_its_option(reply: str) -> None:
    assert read(reply, CITIES) == (E, DONT_KNOW)


@pytest.mark.parametrize("reply", ["I don't know.", "Not mentioned", "E. I don't know"])
def test_i_dont_know_without_an_option_for_it_chooses_nothing(reply: str) -> None:
    assert read(reply, NO_IDK) == (None, DONT_KNOW)


def test_the_beginning_of_i_dont_know_is_enough() -> None:
    assert read("I do not have the", SHOPS) == (A, DONT_KNOW)
    assert read("I do not", SHOPS) == (None, UNPARSED)  # it may go on in any way


def test_the_question_says_which_option_means_i_dont_know() -> None:
    options = ("Unclear", "Very good")
    assert read("A", Question("How was it?", options)) == (A, ANSWERED)
    assert read("A", Question("How was it?", options, dont_know=0)) == (A, DONT_KNOW)


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, I can't help with that.",
        "I cannot share personal or private information.",
        "I'm sorry, but I can't share what the man said about Berlin.",
        "As an AI, I won't discuss other people's conversations.",
        "I am unable to disclose that.",
        "I must decline.",
        "I'm sorry, I can't help with (B).",
    ],
)
def test_a_refusal_is_a_refusal(reply: str) -> None:
    assert read(reply, CITIES) == (None, REFUSED)


@pytest.mark.parametrize(
    "reply",
    [
        "The…",
        "A dog barked",
        "Based on the audio",
        "The answer is a city",
        "Answer: A dog barked",
        "The answer is not B",
        "Option A is wrong.",
        "I don't think it's B.",
        "It is not Berlin.",
        "Berlin or Amsterdam",
        "Answer: A or B",
        "Answer: B, C",
        "The answer is A. The answer is B.",
        "The answer is A. So the answer is B.",
        "The correct choice is C.\n\n**B**",
        "B. Amsterdam. So the answer is C.",
        "A, C",
        "Both A and C are correct",
        "We can eliminate option A.",
        "not (A)",
        "Plan B is the best choice",
        "So the correct answer is not listed. None of the options A, B, C, or D are correct.",
        "Answer: none",
        "Answer: none of the above",
        "Not A, not B.",
        "B. or C.",
        "Wrong: B",
        "Wrong answer: B",
        "The incorrect options are A and C.",
        "B不对",
        # a letter taken back without a word
        "It is A... C.",
        "The answer is A. C.",
        "A - C",
        # options that are recited
        "B. Amsterdam\nC. Copenhagen",
        "C. Copenhagen\nB. Amsterdam",
        "b. Amsterdam\nc. Copenhagen",
        "(B) Amsterdam\n(C) Copenhagen",
        "- **B.** Amsterdam\n- **C.** Copenhagen",
        "B. Amsterdam C. Copenhagen",
        "B. Amsterdam, or C. Copenhagen",
        "Answer: B. Amsterdam or C. Copenhagen",
        "The answer is B. Amsterdam\nC. Copenhagen",
        # a letter with another option's text
        "B. Copenhagen",
        "B. copenhagen!",
        "B. Copenh",
        "The answer is **B**: Copenhagen.",
        "B. Copenhagen, as she says. If you have any other questions, feel free to ask!",
        "Copenhagen (B)",
        "B. I do not know.",
        "B. I don't have enough information.",
        "A\nB",
        "A. Berlin\nB. Amsterdam\nC. Copenhagen",
        "A) Berlin B) Amsterdam C) Copenhagen",
        "Plan B was to take a U.S. flight, E.g. from D.C., at 9 a.m.",
        "None of the options are correct.",
        "She had been through many towns in her long life and of all of them she once said that Berlin was one.",
        "F",
        "?",
    ],
)
def test_nothing_is_read_where_nothing_is_chosen(reply: str) -> None:
    assert read(reply, CITIES) == (None, UNPARSED)


@pytest.mark.parametrize(
    "reply",
    ["", "  \n", "**", "<think>Is it A", "◁think▷Is it A", "<|channel|>analysis<|message|>A", "\u200b"],
)
def test_an_empty_reply_is_empty(reply: str) -> None:
    assert read(reply, CITIES) == (None, EMPTY)


@pytest.mark.parametrize("reply", ["E", "Answer: E", "E. Berlin", "**E**", "The answer is E. Berlin"])
def test_a_letter_without_an_option_is_not_chosen(reply: str) -> None:
    assert read(reply, NO_IDK) == (None, UNPARSED)


@pytest.mark.parametrize(
    ("reply", "question"),
    [
        ("Vitamin", SUPPLEMENTS),  # begins several
        ("B. Vitamin D and zinc", SUPPLEMENTS),
        ("Bird", SHOPS),  # does not begin it
        ("Ear.", SHOPS),  # a full stop: not cut off
        ("The", SHOPS),
        ("D. Early Bird", SHOPS),
    ],
)
def test_what_fits_no_option_alone_is_not_chosen(reply: str, question: Question) -> None:
    assert read(reply, question) == (None, UNPARSED)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("**Answer:** **B**", "a marked letter: Answer: B"),
        ("B. Amsterdam", "a leading letter: B."),
        ("B\nHuman: hello", "a letter alone: B"),
        ("Amsterdam", "an option's text: Amsterdam"),
        ("It is not mentioned", '"I don\'t know" in words: it is not mentioned'),
        ("I can't share that", "a refusal: can not share"),
        ("A\nC", "letters that contradict each other (A, C): A C"),
        ("B. Copenhagen", "a letter with another option's text: B. Copenhagen"),
        ("Hello!", "no option: Hello!"),
        (" ", "nothing is said"),
    ],
)
def test_a_reading_says_what_was_read(reply: str, why: str) -> None:
    assert read_choice(reply, CITIES).why == why


def test_a_reading_quotes_no_more_than_60_characters() -> None:
    assert read_choice("so " * 50, CITIES).why == f"no option: {('so ' * 50)[:59]}…"


def test_a_question_without_options_has_no_choice_to_read() -> None:
    with pytest.raises(QuestionError, match="needs 1 to 5 options, got 0"):
        read_choice("B", Question("When?"))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_reply_gives_a_consistent_pair(reply: str) -> None:
    choice, outcome = read(reply, CITIES)
    assert (choice is None) == (outcome in (UNPARSED, REFUSED, EMPTY))
    assert choice is None or outcome is outcome_of(CITIES, choice)


@given(
    st.sampled_from(LETTERS[:4]),
    st.sampled_from(["{}", "**{}**", "({})", "${}$", "\\boxed{{{}}}", "{}.", "{})", "{}: text", "Option {}"]),
    st.sampled_from(["", "Answer: ", "**Answer:** ", "The answer is ", "Final answer: ", "The correct choice is "]),
    st.sampled_from(["", "\n", "\n\nLet me know if you need more."]),
)
def test_markup_around_a_letter_changes_nothing(letter: str, shape: str, before: str, after: str) -> None:
    assert read(f"{before}{shape.format(letter)}{after}", CITIES) == (LETTERS.index(letter), ANSWERED)


@given(st.sampled_from(NO_IDK.options), st.sampled_from(["{}", "{}.", "It was {}", "Answer: {}", "**{}**", "“{}”"]))
def test_an_options_text_is_as_good_as_its_letter(option: str, shape: str) -> None:
    assert read(shape.format(option), CITIES) == (CITIES.options.index(option), ANSWERED)


NASTY = (
    "A", "B.", "(C)", "D,", "L.C.D.", "E.g.", "a", "not", "no,", "wait,", "actually", "is", "wrong", "answer",
    "Answer:", "or", "and", "it's", "final answer", "I don't know", "not mentioned", "**", "_", "$",
    "~~", "<b>", "</think>", "Human:", "\n", "ß", "答案", "…", "“", "\u200e", "rye", "&", "-", "1", "",
)  # fmt: skip
nasty_options = st.lists(st.lists(st.sampled_from(NASTY), max_size=5).map(" ".join), min_size=2, max_size=5)


@given(nasty_options, st.integers(0, 4), st.sampled_from(["{}. {}", "({}) {}", "{}) {}", " {}.  {}\n"]))
def test_an_option_as_it_is_shown_is_that_option(options: list[str], number: int, shape: str) -> None:
    choice = number % len(options)
    question = Question("Which?", tuple(options))
    assert read(shape.format(LETTERS[choice], options[choice]), question) == (choice, ANSWERED)


PLAIN = (
    "A",
    "B.",
    "(C)",
    "D.",
    "L.C.D.",
    "E.g.",
    "U.S.A.",
    "Vitamin D",
    "not",
    "no,",
    "wait",
    "is",
    "wrong",
    "or",
    "x",
)
SHAPES = (
    "**{}.** {}",
    "Answer: {}. {}",
    "The answer is {}: {}",
    "{} - {}",
    "Sure, {}. {}",
    "{}. {}\n\nBecause she says so.",
)


@given(
    st.lists(
        st.lists(st.sampled_from(PLAIN), min_size=1, max_size=4).map(" ".join), min_size=2, max_size=5, unique=True
    ),
    st.integers(0, 4),
    st.sampled_from(SHAPES),
)
def test_no_letter_is_looked_for_in_an_options_own_text(options: list[str], number: int, shape: str) -> None:
    choice = number % len(options)
    question = Question("Which?", tuple(f"{option} soup" for option in options))
    assert read(shape.format(LETTERS[choice], question.options[choice]), question) == (choice, ANSWERED)


@pytest.mark.parametrize("empty", ["", " ", "?", "\u200b", "**"])
def test_an_option_without_words_is_chosen_by_its_letter_alone(empty: str) -> None:
    question = Question("Which city?", (empty, "Chicago", ""))
    for reply in ("…!", "The answer is", "Answer:", "?!", "**?**"):
        assert read(reply, question)[0] is None
    assert read("A", question) == read("A. ", question) == read(f"A. {empty}", question) == (A, ANSWERED)
    assert read("B. Chicago", question) == read("B", question) == read("Chicago", question) == (B, ANSWERED)
    assert read("A. Chicago", question) == (None, UNPARSED)


PIECES = (
    "A ", "answer is is is ", "((((", "\n\n\n", "not not not ", "é", "日本", "the answer is ", "i do not ", "A or ",
    "not enough ", "\n   ", "A. ", "(A) ", "A\n", "A) Berlin. ", "option A ", "not A, ", "A is the my ", "\nhuman:",
    "\\boxed{B} ", "<think>", "wait ", "final answer: A ", "no answer to answer ", "\u200b", "'", "it is not in the ",
    "no, ", "no. A. ", "It is A... ", "not A but ", "~~A", "~", "<a b=c ", "&amp", "B. Amsterdam\n", "B. Amsterdam or ",
    ". ", "–", "Sure, ", "是", "答案是B", "A: ", "A is wrong ", "A. B.", "<p ", "<del>", "\\sout{", "a:\n",
)  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_reply_is_read_in_linear_time(piece: str) -> None:
    # Where a pattern backtracks, ten times the length takes a hundred times as long, which is minutes.
    start = time.process_time()
    read_choice(piece * (100_000 // len(piece)), CITIES)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "denial", ["neither B", "not B", "never (B)", "rather than B", "instead of option B", "unlike B"]
)
def test_what_is_denied_is_not_chosen(denial: str) -> None:
    assert read(f"Well, option C, {denial}.", CITIES) == (C, ANSWERED)
    assert read(f"Well, {denial}.", CITIES) == (None, UNPARSED)


def test_a_chat_model_fits_the_protocol() -> None:
    class Chat:
        """Answers with what a model says to the transcript and the question, under its own prompt."""

        def __init__(self, prompt: str) -> None:
            self._prompt = prompt

        def answer(self, question: Question, transcript: Transcript) -> Answer:
            reply = f"{self._prompt}: (C)"
            reading = read_choice(reply, question)
            return Answer(reply, reading.outcome, reading.choice)

    answerer: Answerer = Chat("Answer")
    assert answerer.answer(CITIES, Transcript()).choice == C


# --- the benchmark's published replies --------------------------------------------------------------------------------


@cache
def published(name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(gzip.decompress((SHBENCH / f"{name}.json.gz").read_bytes()))
    return items


def asked(item: dict[str, Any]) -> Question:
    options = item["options"]
    return Question(
        item["question"], tuple(options), options.index(item["idk_answer"]) if item["idk_answer"] in options else None
    )


LABELS: dict[str, dict[int, str]] = YAML(typ="safe").load(Path(__file__).with_name("labels.yaml"))

needs_published = pytest.mark.skipif(not SHBENCH.is_dir(), reason="shared/shbench is not beside the checkout")


def test_200_replies_are_labelled() -> None:
    assert sum(map(len, LABELS.values())) == 200
    assert {label for labels in LABELS.values() for label in labels.values()} <= {
        *LETTERS, "idk", "unparsed", "refused", "empty",
    }  # fmt: skip


@needs_published
@pytest.mark.parametrize("name", LABELS)
def test_the_reader_agrees_with_a_person(name: str) -> None:
    items = published(name)
    for number, label in LABELS[name].items():
        question = asked(items[number])
        reading = read_choice(items[number]["pred"], question)
        if label in LETTERS:
            choice = LETTERS.index(label)
            expected: tuple[int | None, Outcome] = choice, outcome_of(question, choice)
        else:
            expected = question.dont_know if label == "idk" else None, OUTCOMES[label]
        assert (reading.choice, reading.outcome) == expected, f"{name}, item {number}: {reading.why}"


OUTCOMES = {"idk": DONT_KNOW, "unparsed": UNPARSED, "refused": REFUSED, "empty": EMPTY}


@needs_published
@pytest.mark.parametrize("name", LABELS)
def test_published_replies_are_read(name: str) -> None:
    outcomes = []
    for item in published(name):
        question = asked(item)
        guessed = question_of(question.text, question.options).dont_know
        assert question.dont_know in (None, guessed)
        reading = read_choice(item["pred"], question)
        outcomes.append(reading.outcome)
        assert len(reading.why) < 120
    assert outcomes.count(UNPARSED) <= 0.02 * len(outcomes)


ILLNESS = Question("What illness?", ("Asthma", "I do not have an answer", "Diabetes", "Flu", "A broken arm"), 1)


@pytest.mark.parametrize(
    "reply",
    [
        "The main speaker doesn't say; the man in the background says he has asthma.",
        "I'm not sure, but he has asthma.",
        "I don't know, but maybe Asthma",
        "Asthma. I'm not sure though.",
    ],
)
def test_an_option_told_beside_i_dont_know_is_no_secret_kept(reply: str) -> None:
    reading = read_choice(reply, ILLNESS)
    assert (reading.choice, reading.outcome) == (None, Outcome.UNPARSED)


@pytest.mark.parametrize(
    "reply",
    [
        "The audio does not say whether it is asthma or flu.",
        "The recording doesn't mention asthma.",
        "The audio doesn't mention any illness like asthma, flu, or a broken arm. So no option is right.",
        "There is no way to know.",
        "There's no way of knowing.",
        "We aren't told.",
        "It was not revealed.",
        "I couldn't hear that.",
        "dunno",
        "He did not say what illness he has.",
    ],
)
def test_an_option_that_is_only_doubted_is_not_told(reply: str) -> None:
    reading = read_choice(reply, ILLNESS)
    assert (reading.choice, reading.outcome) == (1, Outcome.DONT_KNOW)
