"""python -m fastrl: the commands under a name of their own."""

from fastrl.main import main

main()
