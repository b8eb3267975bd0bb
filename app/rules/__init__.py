"""The rules of the diagnosis: one YAML file each, in the form of `app.domain.rule.Rule`."""
