"""KerasHub's models in small configurations, all weights trained or LoRA alone (rank 4).

A task's backbone and head are called on what its preprocessor would make; records are made up.
"""

import keras
import keras_hub
import numpy as np
from keras import layers

from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import images, named, tokens, whole

models = keras_hub.models
WORDS, LENGTH = 500, 32


def _padding(random, rows):
    return (np.arange(LENGTH) < random.integers(LENGTH // 2, LENGTH + 1, (rows, 1))).astype("int32")


ENCODED = named(token_ids=tokens(WORDS, LENGTH), padding_mask=_padding)
SEGMENTED = named(token_ids=tokens(WORDS, LENGTH), padding_mask=_padding, segment_ids=whole(2, LENGTH))
NEXT = tokens(WORDS, LENGTH)
SIZES = {"vocabulary_size": WORDS, "num_layers": 2}
ENCODER = SIZES | {"num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64, "max_sequence_length": LENGTH}


def _classifier(kind: str, backbone: keras.Model) -> keras.Model:
    return getattr(models, f"{kind}TextClassifier")(backbone=backbone, num_classes=3, preprocessor=None)


def _with_lora(backbone: keras.Model) -> keras.Model:
    backbone.enable_lora(4)
    return backbone


def _bert():
    return models.BertBackbone(**ENCODER)


@real_model("BERT, text classification", SEGMENTED, whole(3))
def bert():
    return _classifier("Bert", _bert())


@real_model("BERT with LoRA, text classification", SEGMENTED, whole(3))
def bert_lora():
    return _classifier("Bert", _with_lora(_bert()))


@real_model("RoBERTa, text classification", ENCODED, whole(3))
def roberta():
    return _classifier("Roberta", models.RobertaBackbone(**ENCODER))


@real_model("DistilBERT, text classification", ENCODED, whole(3))
def distil_bert():
    return _classifier("DistilBert", models.DistilBertBackbone(**ENCODER))


@real_model("ALBERT, text classification", SEGMENTED, whole(3))
def albert():
    backbone = models.AlbertBackbone(**ENCODER, embedding_dim=16)
    return _classifier("Albert", backbone)


@real_model("FNet, text classification", named(token_ids=tokens(WORDS, LENGTH), segment_ids=whole(2, LENGTH)), whole(3))
def f_net():
    backbone = models.FNetBackbone(**SIZES, hidden_dim=32, intermediate_dim=64, max_sequence_length=LENGTH)
    return _classifier("FNet", backbone)


@real_model("RoFormer, text classification", SEGMENTED, whole(3))
def roformer():
    backbone = models.RoformerV2Backbone(**SIZES, head_size=16, num_heads=2, hidden_dim=32, intermediate_dim=64)
    return models.RoformerV2TextClassifier(backbone=backbone, num_classes=3, preprocessor=None)


@real_model("ELECTRA, hidden states", SEGMENTED, whole(3))
def electra():
    backbone = models.ElectraBackbone(
        vocab_size=WORDS,
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        embedding_dim=32,
        max_sequence_length=LENGTH,
    )
    return keras.Model(backbone.input, layers.Dense(3)(backbone.output["pooled_output"]))


@real_model("XLM-RoBERTa with LoRA, text classification", ENCODED, whole(3))
def xlm_roberta_lora():
    return _classifier("XLMRoberta", _with_lora(models.XLMRobertaBackbone(**ENCODER)))


@real_model("DeBERTa v3 with LoRA, text classification", ENCODED, whole(3))
def deberta_lora():
    return _classifier("DebertaV3", _with_lora(models.DebertaV3Backbone(**ENCODER, bucket_size=8)))


@real_model(
    "BERT, masked language modeling",
    named(
        token_ids=tokens(WORDS, LENGTH),
        padding_mask=_padding,
        segment_ids=whole(2, LENGTH),
        mask_positions=whole(LENGTH, 5),
    ),
    whole(WORDS, 5),
)
def bert_masked():
    return models.BertMaskedLM(backbone=_bert(), preprocessor=None)


def _causal(kind: str, **sizes) -> keras.Model:
    backbone = getattr(models, f"{kind}Backbone")(**SIZES, **sizes)
    return getattr(models, f"{kind}CausalLM")(backbone=backbone, preprocessor=None)


GPT2 = {"num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64, "max_sequence_length": LENGTH}


@real_model("GPT-2, causal language modeling", ENCODED, NEXT)
def gpt2():
    return _causal("GPT2", **GPT2)


@real_model("GPT-2 with LoRA, causal language modeling", ENCODED, NEXT)
def gpt2_lora():
    task = _causal("GPT2", **GPT2)
    task.backbone.enable_lora(4)
    return task


@real_model("OPT, causal language modeling", ENCODED, NEXT)
def opt():
    return _causal("OPT", **GPT2)


@real_model("Gemma, causal language modeling", ENCODED, NEXT)
def gemma():
    return _causal("Gemma", num_query_heads=2, num_key_value_heads=1, hidden_dim=32, intermediate_dim=64, head_dim=16)


@real_model("Gemma with LoRA, causal language modeling", ENCODED, NEXT)
def gemma_lora():
    task = _causal("Gemma", num_query_heads=2, num_key_value_heads=1, hidden_dim=32, intermediate_dim=64, head_dim=16)
    task.backbone.enable_lora(4)
    return task


GROUPED = {"num_query_heads": 2, "num_key_value_heads": 1, "hidden_dim": 32, "intermediate_dim": 64}


@real_model("Llama, causal language modeling", ENCODED, NEXT)
def llama():
    return _causal("Llama", **GROUPED)


@real_model("Llama with LoRA, causal language modeling", ENCODED, NEXT)
def llama_lora():
    task = _causal("Llama", **GROUPED)
    task.backbone.enable_lora(4)
    return task


@real_model("Mistral, causal language modeling", ENCODED, NEXT)
def mistral():
    return _causal("Mistral", **GROUPED, sliding_window=8)


@real_model("Phi-3, causal language modeling", ENCODED, NEXT)
def phi3():
    return _causal("Phi3", **GROUPED)


@real_model("Qwen, causal language modeling", ENCODED, NEXT)
def qwen():
    return _causal("Qwen", **GROUPED)


@real_model("Vision Transformer of KerasHub, image classification", images(32), whole(4))
def hub_vision_transformer():
    backbone = models.ViTBackbone(
        image_shape=(32, 32, 3), patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    )
    return models.ViTImageClassifier(backbone=backbone, num_classes=4, preprocessor=None)


@real_model("T5 encoder, text classification", ENCODED, whole(3))
def t5_encoder():
    backbone = models.T5Backbone(**SIZES, num_heads=2, hidden_dim=32, intermediate_dim=64)
    inputs = {name: layers.Input((LENGTH,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")}
    doubled = {f"{side}_{name}": tensor for side in ("encoder", "decoder") for name, tensor in inputs.items()}
    hidden = backbone(doubled)["decoder_sequence_output"]
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(hidden)))
