"""What private training costs: against plain Keras (`step_cost`, `growth`), in itself (`physical_batches`, `input_cost`), against
other libraries (`peers`). `report` writes the page."""
