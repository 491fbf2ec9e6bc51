"""The cloud controller manager: its pure parts, and its controllers on virtual time with a real rack behind them."""
