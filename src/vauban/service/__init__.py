"""The service behind `vauban serve`: predicts and certifies over HTTP, with all requests sharing compute shapes."""
