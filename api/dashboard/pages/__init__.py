"""The pages of the dashboard: a module per entry of the menu."""
