"""Global indexes: which leaf takes an object, which leaves a query concerns, and how leaves are shared out to slots."""
