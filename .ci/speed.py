"""How fast training is beside Avalanche, a bare loop and a literal CM step: `cmlib bench ratios` as one JSON object."""

from cmlib.bench import main

if __name__ == "__main__":
    main("ratios", as_json=True)
