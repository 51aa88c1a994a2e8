"""Convolutional networks with batch norm, of keras.applications and KerasHub, after `tfdp.models.without_batch_norm`."""

import keras
import keras_hub
import numpy as np
from keras import layers

import tfdp
from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import images, whole

applications, models = keras.applications, keras_hub.models
SHAPE, CLASSES = (32, 32, 3), whole(4)


def _learned(model: keras.Model) -> keras.Model:
    """With statistics as training leaves them."""
    random = np.random.default_rng(0)
    for layer in model._flatten_layers():
        if isinstance(layer, layers.BatchNormalization):
            layer.moving_mean.assign(random.normal(0, 0.1, layer.moving_mean.shape))
            layer.moving_variance.assign(random.uniform(0.5, 1.5, layer.moving_variance.shape))
    return model


def _headed(backbone: keras.Model, by: str) -> keras.Model:
    base = tfdp.models.without_batch_norm(_learned(backbone), by=by)
    inputs = layers.Input(SHAPE)
    x = keras.tree.flatten(base(inputs))[-1]
    x = layers.GlobalAveragePooling2D()(x) if len(x.shape) == 4 else x
    return keras.Model(inputs, layers.Dense(4)(x))


def _application(make, by: str, **options) -> keras.Model:
    return _headed(make(include_top=False, weights=None, input_shape=SHAPE, **options), by)


@real_model("MobileNetV2, group normalization", images(32), CLASSES)
def mobilenet_v2():
    return _application(applications.MobileNetV2, "group", alpha=0.35)


@real_model("MobileNetV2, frozen statistics", images(32), CLASSES)
def mobilenet_v2_frozen():
    return _application(applications.MobileNetV2, "frozen", alpha=0.35)


@real_model("MobileNetV3Small, group normalization", images(32), CLASSES)
def mobilenet_v3():
    return _application(applications.MobileNetV3Small, "group", minimalistic=False)


@real_model("ResNet50, group normalization", images(32), CLASSES, lot=8)
def resnet50():
    return _application(applications.ResNet50, "group")


@real_model("EfficientNetB0, frozen statistics", images(32), CLASSES, lot=8)
def efficientnet_b0():
    return _application(applications.EfficientNetB0, "frozen")


@real_model("DenseNet121, group normalization", images(32), CLASSES, lot=8)
def densenet121():
    return _application(applications.DenseNet121, "group")


def _res_net():
    return models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[1, 2],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
        image_shape=SHAPE,
    )


@real_model("KerasHub ResNet, group normalization", images(32), CLASSES)
def hub_resnet():
    return _headed(_res_net(), "group")


@real_model("KerasHub ResNet, frozen statistics", images(32), CLASSES)
def hub_resnet_frozen():
    return _headed(_res_net(), "frozen")


@real_model("KerasHub DenseNet, group normalization", images(32), CLASSES)
def hub_densenet():
    return _headed(models.DenseNetBackbone(stackwise_num_repeats=[2, 2], image_shape=SHAPE, growth_rate=8), "group")


@real_model(
    "KerasHub CSPNet (DarkNet), group normalization",
    images(32),
    CLASSES,
    note="one record is at the kink of an activation, where brute force in float32 is 2e-3 off: tfdp's step is 6e-7 from float64's",
)
def hub_darknet():
    backbone = models.CSPNetBackbone(
        stem_filters=16,
        stem_kernel_size=3,
        stem_strides=1,
        stackwise_depth=[1, 1],
        stackwise_strides=[1, 2],
        stackwise_num_filters=[16, 32],
        block_type="dark_block",
        stage_type="dark",
        image_shape=SHAPE,
    )
    return _headed(backbone, "group")


@real_model("KerasHub Xception, group normalization", images(32), CLASSES)
def hub_xception():
    backbone = models.XceptionBackbone([[16, 16], [24, 24]], [True, False], image_shape=SHAPE)
    return _headed(backbone, "group")


@real_model("KerasHub MobileNet, group normalization", images(32), CLASSES)
def hub_mobilenet():
    backbone = models.MobileNetBackbone(
        stackwise_expansion=[[16, 16], [24, 24]],
        stackwise_num_blocks=[2, 2],
        stackwise_num_filters=[[8, 8], [16, 16]],
        stackwise_kernel_size=[[3, 3], [5, 5]],
        stackwise_num_strides=[[2, 1], [2, 1]],
        stackwise_se_ratio=[[None, None], [0.25, 0.25]],
        stackwise_activation=[["relu", "relu"], ["hard_swish", "hard_swish"]],
        stackwise_padding=[[1, 1], [2, 2]],
        output_num_filters=32,
        input_num_filters=8,
        depthwise_filters=8,
        depthwise_stride=2,
        depthwise_residual=False,
        last_layer_filter=32,
        image_shape=SHAPE,
    )
    return _headed(backbone, "group")


@real_model("KerasHub EfficientNet, frozen statistics", images(32), CLASSES)
def hub_efficientnet():
    backbone = models.EfficientNetBackbone(
        stackwise_width_coefficients=[1.0, 1.0],
        stackwise_depth_coefficients=[1.0, 1.0],
        stackwise_kernel_sizes=[3, 3],
        stackwise_num_repeats=[1, 2],
        stackwise_input_filters=[16, 8],
        stackwise_output_filters=[8, 16],
        stackwise_expansion_ratios=[1, 4],
        stackwise_squeeze_and_excite_ratios=[0.25, 0.25],
        stackwise_strides=[1, 2],
        stackwise_block_types=["fused", "unfused"],
        stackwise_force_input_filters=[0, 0],
        stackwise_nores_option=[False, False],
        input_shape=SHAPE,
    )
    return _headed(backbone, "frozen")
