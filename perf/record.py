"""`perf.report` under its former name."""

from perf.report.recording import main

if __name__ == "__main__":
    main()
