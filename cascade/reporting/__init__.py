"""What a run found -> one self-contained page for people. Nothing here writes a file.

timeline    a recording -> rows of lanes: speech, evidence, decisions, waveform, and the transcript below
drawing     a figure that was drawn elsewhere -> a part of a page
page        values -> HTML, everything escaped, without a script and without anything from elsewhere
recordings  what `run` found in recordings -> a page
benchmark   what a benchmark's run found -> a page
"""
