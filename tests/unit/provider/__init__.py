"""The provider's pure parts: names, marks, user data, plans, statuses."""
