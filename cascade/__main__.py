"""python -m cascade."""

from cascade.cli import main

main()
