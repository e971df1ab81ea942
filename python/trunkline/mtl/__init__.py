"""MTL: commands in JSON, and contents under a lease (11/MTL)."""
