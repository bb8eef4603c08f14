from perf.learning.training import main

if __name__ == "__main__":
    main()
