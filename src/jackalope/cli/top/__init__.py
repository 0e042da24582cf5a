"""The live view of a broker on a whole terminal: what it shows, its keys, and the terminal."""
