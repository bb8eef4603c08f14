from perf.peers.comparison import main

if __name__ == "__main__":
    main()
