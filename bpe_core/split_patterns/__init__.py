"""Split patterns read in their dialects and compiled to native automata."""
