"""What private training costs: against plain Keras (`step_cost`, `growth`) and against other libraries (`peers`)."""
