"""The Oxide client without a rack: errors, models, transport and the shared observation."""
