"""Small models, one for each way a weight can meet an example; `tests.model_zoo` gathers them."""
