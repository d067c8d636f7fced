"""SH-Bench: items in, each recording heard once and asked all of its questions, predictions and scores out.

items        the benchmark's file -> items
running      items -> hearings and answers, journalled
scores       prediction files -> systems, their scores, and what is wrong with the files
comparison   scores beside the paper's rows: table and figure

A prediction file is the benchmark's own format: its items with `pred`, and `logp` where there are probabilities.
"""
