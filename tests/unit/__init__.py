"""Pure logic and the rules of the house: no I/O beyond reading this tree, milliseconds a test."""
