"""What people see while a command runs and at its end."""
