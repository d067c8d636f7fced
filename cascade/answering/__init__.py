"""Question + Transcript -> Answer: what every answerer shares. It sees admitted text only: withheld spans carry none.

    questions   the protocol of an answerer; questions, their option letters, and the option that says "I don't know"
    prompts     what a chat model is told
    reading     a chat model's reply -> the option that it chooses
    declining   a reply to an open question -> whether it answers, declines or refuses

Under both, each from those before it:

    plain       texts in one plain writing, so that they can be compared
    phrases     "I don't know" and refusals in words
    letters     the option letters that a reply names
"""
