"""SH-Bench: items in, each recording heard once and asked all of its questions, predictions and scores out.

items        the benchmark's file -> items
recordings   the recordings that items name, and what is said in them
plan         what a run is going to do, checked beforehand
running      items -> hearings and answers, journalled
results      what is left of a run: its final files; shards merged
names        a prediction file's name -> its mode, setting and system
audit        what is wrong with a file of predictions
scores       prediction files -> systems and their scores
paper        what the paper reports, as data
comparison   scores in the paper's shape: rows among its own; published files value by value
tables       scores.md: scores and comparison as Markdown
screen       the same in short, for a terminal
figure       the paper's figure 4 with the run in it

A prediction file is the benchmark's own format: its items with `pred`, and `logp` where there are probabilities.
"""
