"""Our architectures, known to transformers' Auto classes once this module is imported."""

from transformers import AutoConfig, AutoModelForCausalLM

from llm360.model.crystal import CrystalConfig, CrystalForCausalLM

AutoConfig.register(CrystalConfig.model_type, CrystalConfig, exist_ok=True)
AutoModelForCausalLM.register(CrystalConfig, CrystalForCausalLM, exist_ok=True)
