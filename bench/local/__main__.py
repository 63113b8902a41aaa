"""`python -m bench.local`: see bench.local.lines."""

from bench.local.lines import main

if __name__ == "__main__":
    main()
