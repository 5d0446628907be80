"""The part of the clients that calls the API about stacks of workflow sessions."""
