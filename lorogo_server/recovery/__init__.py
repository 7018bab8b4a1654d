"""Recovery of what NATS lost: servers repair it from journals, `lorogo restore` rebuilds all of it."""
