"""Parts of the simulated rack by themselves."""
