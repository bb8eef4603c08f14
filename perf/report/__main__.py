from perf.report.recording import main

if __name__ == "__main__":
    main()
