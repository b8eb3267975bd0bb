"""The bundled catalog: one YAML file an accelerator, model or price, each with its sources and the day it was last checked."""
