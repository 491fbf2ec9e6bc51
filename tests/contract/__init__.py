"""Contract tests: what others rely on (the OpenAPI document, the rules for CRDs, the import rules) holds."""
