"""Results -> counts -> measures; knows nothing of the cascade but its types, so that it scores other systems too.

Scoring counts, it does not average: every measure rests on a Tally, and tallies of several recordings add up.

    tally      so many of so many, with an interval
    bootstrap  a measure of several recordings, with an interval
    leakage    transcript and turns against a reference: what leaked, what was kept
    efficacy   answers -> accuracies by mode and speaker -> Selective Efficacy
    paper      how the published evaluation reads a reply
"""
