"""SH-Bench: items in, each recording heard once and asked all of its questions, predictions and scores out.

items        the benchmark's file -> items
running      items -> hearings and answers, journalled
scores       prediction files -> systems, their scores, and what is wrong with the files
paper        what the paper reports, as data
comparison   scores in the paper's shape: rows among its own; published files value by value
tables       scores.md: scores and comparison as Markdown
screen       the same in short, for a terminal
figure       the paper's figure 4 with the run in it

A prediction file is the benchmark's own format: its items with `pred`, and `logp` where there are probabilities.
"""
