"""Global indexes: the routing of objects and queries to leaves, and the assignment of leaves to slots."""
