"""HTTP at the gateway: routes, parameters, bodies, failures, and the OpenAPI description."""
