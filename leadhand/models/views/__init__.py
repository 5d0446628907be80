"""Views: the models of API responses, shared by server and client."""
