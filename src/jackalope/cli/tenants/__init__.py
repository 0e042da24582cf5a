"""Commands about tenants: namespaces, and what administrators did."""
