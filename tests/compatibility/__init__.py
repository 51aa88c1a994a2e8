"""What happens to each documented Keras training feature with a private optimizer: one small fit each, and the page that says so."""
