"""The only package that writes files.

files        private files and folders, whole or not at all
recordings   what came of a recording, in a folder of its own
journal      what a benchmark's run has done so far
benchmark    predictions and scores
models       the files of models that were pulled

What they write is private: only its owner may read it.
"""
