"""One registry for each kind of thing that a configuration can name.

What is built in stands here as "module:attribute" and is imported when it is first used, so that a new thing is one
line here, and `covey --help` imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from covey.settings.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from covey.core.round import Method, Rule
    from covey.data.types import Dataset, Shift
    from covey.fleet.profiles import Device
    from covey.runs.tracking import Tracker
    from covey.training.metrics import Metric
    from covey.training.objective import Objective

# train, settings -> a method
METHODS: Registry[Callable[..., Method]] = Registry(
    "method",
    "covey.methods",
    {
        "covey": "covey.methods.covey:covey",
        "fedavg": "covey.methods.baselines:fedavg",
        "fedprox": "covey.methods.baselines:fedprox",
        "local": "covey.methods.baselines:local_only",
        "centralized": "covey.methods.baselines:centralized",
        "decentralized": "covey.methods.topologies:decentralized",
        "hierarchical": "covey.methods.topologies:hierarchical",
        "semi-decentralized": "covey.methods.topologies:semi_decentralized",
        "haccs": "covey.methods.haccs:haccs",
        "random": "covey.methods.schedulers:random",
        "tifl": "covey.methods.schedulers:tifl",
        "oort": "covey.methods.schedulers:oort",
        "oort-simple": "covey.methods.schedulers:oort_simple",
        "power-of-choice": "covey.methods.schedulers:power_of_choice",
        "cfic": "covey.methods.cfic:cfic",
        "cfl": "covey.methods.cfl:cfl",
        "pacfl": "covey.methods.pacfl:pacfl",
        "flux": "covey.methods.flux:flux",
        "fedrc": "covey.methods.fedrc:fedrc",
        "cfl-gp": "covey.methods.cflgp:cfl_gp",
        "fedgwc": "covey.methods.fedgwc:fedgwc",
        "fesem": "covey.methods.fesem:fesem",
        "fedsoft": "covey.methods.fedsoft:fedsoft",
        "flis": "covey.methods.flis:flis",
        "fedgroup": "covey.methods.fedgroup:fedgroup",
        "auxo": "covey.methods.auxo:auxo",
        "feddrift": "covey.methods.feddrift:feddrift",
        "fedavgm": "covey.methods.server_optimisers:fedavgm",
        "fedadam": "covey.methods.server_optimisers:fedadam",
        "fedyogi": "covey.methods.server_optimisers:fedyogi",
        "fedadagrad": "covey.methods.server_optimisers:fedadagrad",
        "scaffold": "covey.methods.scaffold:scaffold",
        "flips": "covey.methods.selections:flips",
        "hics": "covey.methods.selections:hics",
        "divfl": "covey.methods.selections:divfl",
        "refl": "covey.methods.selections:refl",
        "fedasync": "covey.methods.stale:fedasync",
        "fedbuff": "covey.methods.stale:fedbuff",
        "fednova": "covey.methods.fednova:fednova",
        "moon": "covey.methods.moon:moon",
        "mime-lite": "covey.methods.mime:mime_lite",
        "fine-tuned": "covey.methods.personal:fine_tuned",
        "fedper": "covey.methods.personal:fedper",
        "fedrep": "covey.methods.personal:fedrep",
        "fedbn": "covey.methods.personal:fedbn",
        "ditto": "covey.methods.personal:ditto",
        "pfedme": "covey.methods.pfedme:pfedme",
        "apfl": "covey.methods.apfl:apfl",
        "per-fedavg": "covey.methods.per_fedavg:per_fedavg",
        "fedala": "covey.methods.fedala:fedala",
        "fedamp": "covey.methods.fedamp:fedamp",
        "feddisco": "covey.methods.feddisco:feddisco",
        "feddyn": "covey.methods.feddyn:feddyn",
        "fedfa": "covey.methods.fedfa:fedfa",
        "fedmgda": "covey.methods.fedmgda:fedmgda",
        "clustered-sampling": "covey.methods.clustered_sampling:clustered_sampling",
        "krum": "covey.methods.robust:krum",
        "trimmed-mean": "covey.methods.robust:trimmed_mean",
        "median": "covey.methods.robust:median",
        "cafa": "covey.methods.cafa:cafa",
        "abfa": "covey.methods.cafa:abfa",
        "cbcc": "covey.methods.cafa:cbcc",
        "cbcc-select": "covey.methods.cafa:cbcc_select",
        "embedding": "covey.methods.embedding:embedding",
        "ifca": "covey.methods.ifca:ifca",
        "ladd": "covey.methods.ladd:ladd",
        "compose": "covey.methods.compose:compose",
    },
)

# settings -> a data set
DATASETS: Registry[Callable[..., Dataset]] = Registry(
    "data set",
    "covey.datasets",
    {
        "digits": "covey.data.loaders.digits:digits",
        "mnist": "covey.data.loaders.idx:mnist",
        "fashion-mnist": "covey.data.loaders.idx:fashion_mnist",
        "emnist": "covey.data.loaders.idx:emnist",
        "cifar10": "covey.data.loaders.cifar_svhn:cifar10",
        "cifar100": "covey.data.loaders.cifar_svhn:cifar100",
        "svhn": "covey.data.loaders.cifar_svhn:svhn",
        "femnist": "covey.data.loaders.femnist:femnist",
        "pacs": "covey.data.loaders.pacs:pacs",
        "breast-cancer": "covey.data.loaders.patients:breast_cancer",
        "diabetes": "covey.data.loaders.patients:diabetes",
        "emoji-names": "covey.data.loaders.emoji_names:emoji_names",
        "motions": "covey.data.loaders.motions:motions",
        "table": "covey.data.table:table",
        "images": "covey.data.image_folder:images",
        "leaf": "covey.data.split_files:leaf",
        "clients": "covey.data.split_files:clients",
    },
)

# labels, groups or pixels, clients, rng, settings -> the positions that each client gets
PARTITIONS: Registry[Callable[..., Any]] = Registry(
    "partition",
    "covey.partitions",
    {
        "iid": "covey.data.partitions.even:iid",
        "quantity": "covey.data.partitions.even:quantity",
        "dir-class": "covey.data.partitions.dirichlet:dir_class",
        "dir-class-capped": "covey.data.partitions.dirichlet:dir_class_capped",
        "dir-client": "covey.data.partitions.dirichlet:dir_client",
        "dir-client-prior": "covey.data.partitions.dirichlet:dir_client_prior",
        "shards": "covey.data.partitions.classes:shards",
        "two-label-groups": "covey.data.partitions.classes:two_label_groups",
        "random-classes": "covey.data.partitions.classes:random_classes",
        "iid-of-n": "covey.data.partitions.mixes:iid_of_n",
        "few-classes": "covey.data.partitions.classes:few_classes",
        "majority": "covey.data.partitions.mixes:majority",
        "m-labels": "covey.data.partitions.mixes:m_labels",
        "kmeans-pixels": "covey.data.partitions.natural:kmeans_pixels",
        "domain": "covey.data.partitions.natural:domain",
        "natural": "covey.data.partitions.natural:natural",
    },
)

# a data set, the clients' label counts, settings -> one shift per client
SHIFTS: Registry[Callable[..., list[Shift]]] = Registry(
    "shift",
    "covey.shifts",
    {
        "rotation": "covey.data.shifts:rotation",
        "label": "covey.data.shifts:label",
        "tilt": "covey.data.shifts:tilt",
        "unlike": "covey.data.unlike:unlike",
    },
)

# input_shape, outputs, settings -> a network
MODELS: Registry[Callable[..., nn.Module]] = Registry(
    "model",
    "covey.models",
    {
        "softmax": "covey.training.models.plain:softmax",
        "mlp": "covey.training.models.plain:mlp",
        "lenet5": "covey.training.models.pictures:lenet5",
        "lenet-tanh": "covey.training.models.pictures:lenet_tanh",
        "cnn-mnist": "covey.training.models.pictures:cnn_mnist",
        "cnn-mnist-small": "covey.training.models.pictures:cnn_mnist_small",
        "cnn-fashion": "covey.training.models.pictures:cnn_fashion",
        "cnn-cifar": "covey.training.models.pictures:cnn_cifar",
        "cnn-emnist": "covey.training.models.pictures:cnn_emnist",
        "cnn-femnist": "covey.training.models.pictures:cnn_femnist",
        "cnn-series": "covey.training.models.series:cnn_series",
        "vgg11": "covey.training.models.deep:vgg11",
        "vgg19": "covey.training.models.deep:vgg19",
        "resnet18": "covey.training.models.deep:resnet18",
        "ae-fc": "covey.training.models.autoencoders:ae_fc",
        "ae-conv": "covey.training.models.autoencoders:ae_conv",
    },
)

# shape, seed, settings -> a network that a method trains beside the run's own, and what it is trained for
CHILD_MODELS: Registry[Callable[..., tuple[nn.Module, Objective]]] = Registry(
    "model of a method",
    "covey.child_models",
    {"autoencoder": "covey.training.models.encoders:autoencoder_and_goal"},
)

# -> an objective: loss, target, scores
OBJECTIVES: Registry[Callable[[], Objective]] = Registry(
    "objective",
    "covey.objectives",
    {
        "classification": "covey.training.objective:Classification",
        "regression": "covey.training.objective:Regression",
        "reconstruction": "covey.training.objective:Reconstruction",
    },
)

# a metric over all predictions, with its direction
METRICS: Registry[Metric] = Registry(
    "metric",
    "covey.metrics",
    {
        "accuracy": "covey.training.metrics:accuracy",
        "loss": "covey.training.metrics:loss",
        "mse": "covey.training.metrics:mse",
        "mae": "covey.training.metrics:mae",
        "macro-f1": "covey.training.metrics:macro_f1",
        "balanced-accuracy": "covey.training.metrics:balanced_accuracy",
        "auc": "covey.training.metrics:auc",
        "perplexity": "covey.training.metrics:perplexity",
        "calibration-error": "covey.training.metrics:calibration_error",
        "rmse": "covey.training.metrics:rmse",
        "r2": "covey.training.metrics:r2",
    },
)

# parameters, lr, momentum and weight_decay where it takes them, settings -> a torch.optim.Optimizer
OPTIMISERS: Registry[Callable[..., Any]] = Registry(
    "optimiser",
    "covey.optimisers",
    {"sgd": "covey.training.bench.optimisers:sgd", "adam": "covey.training.bench.optimisers:adam"},
)

# five uniform numbers from 0 to 1, the device's own, and settings -> a device
PROFILES: Registry[Callable[..., Device]] = Registry(
    "device profile",
    "covey.profiles",
    {
        "ideal": "covey.fleet.profiles:ideal",
        "haccs": "covey.fleet.profiles:haccs",
        "published": "covey.fleet.profiles:published",
    },
)

# settings -> a tracker, which is told of every round (`covey.runs.tracking.Tracker`)
TRACKERS: Registry[Callable[..., Tracker]] = Registry(
    "tracker",
    "covey.trackers",
    {
        "tensorboard": "covey.runs.trackers.tensorboard:TensorBoard",
        "mlflow": "covey.runs.trackers.mlflow:MLflow",
        "wandb": "covey.runs.trackers.wandb:WandB",
    },
)

# What a client may be asked, by the name of the class: the same name travels to real sites.
STEPS: Registry[type] = Registry(
    "step",
    "covey.steps",
    {
        "ClassMeans": "covey.parts.steps.class_means:ClassMeans",
        "CrossEvaluate": "covey.parts.steps.cross:CrossEvaluate",
        "DynTrain": "covey.methods.feddyn:DynTrain",
        "TakeHome": "covey.parts.steps.take_home:TakeHome",
        "Embed": "covey.parts.steps.embedding:Embed",
        "Evaluate": "covey.parts.steps.evaluate:Evaluate",
        "EvaluateAdapted": "covey.parts.steps.judged:EvaluateAdapted",
        "JudgedTrain": "covey.parts.steps.judged:JudgedTrain",
        "DescribeClasses": "covey.methods.covey.portrait:DescribeClasses",
        "CountLabels": "covey.parts.steps.labels:CountLabels",
        "NoisyEvaluate": "covey.parts.steps.noisy_evaluate:NoisyEvaluate",
        "Poisoned": "covey.parts.steps.poison:Poisoned",
        "Quiet": "covey.parts.steps.private:Quiet",
        "SecureKeys": "covey.privacy.secure_steps:SecureKeys",
        "SecureShares": "covey.privacy.secure_steps:SecureShares",
        "SecureUpdate": "covey.privacy.secure_steps:SecureUpdate",
        "SecureOpen": "covey.privacy.secure_steps:SecureOpen",
        "SecureUnmask": "covey.privacy.secure_steps:SecureUnmask",
        "Noised": "covey.parts.steps.private:Noised",
        "ExampleTrain": "covey.privacy.example:ExampleTrain",
        "ScoredTrain": "covey.methods.fedfa:ScoredTrain",
        "Size": "covey.parts.steps.size:Size",
        "TellScale": "covey.parts.steps.scale:TellScale",
        "Style": "covey.methods.ladd:Style",
        "LabelSummary": "covey.parts.steps.summaries:LabelSummary",
        "FeatureSummary": "covey.parts.steps.summaries:FeatureSummary",
        "JointSummary": "covey.parts.steps.summaries:JointSummary",
        "TargetSummary": "covey.parts.steps.summaries:TargetSummary",
        "Train": "covey.parts.steps.train:Train",
        "TrainWithUtility": "covey.methods.oort:TrainWithUtility",
        "TellLabel": "covey.parts.group.label_feature:TellLabel",
        "DittoTrain": "covey.parts.steps.personal:DittoTrain",
        "EvaluateOwn": "covey.parts.steps.personal:EvaluateOwn",
        "TrainWithHome": "covey.parts.steps.home:TrainWithHome",
        "Compressed": "covey.parts.steps.compress:Compressed",
        "ControlledTrain": "covey.methods.scaffold:ControlledTrain",
        "ContrastiveTrain": "covey.methods.moon:ContrastiveTrain",
        "MimicTrain": "covey.methods.mime:MimicTrain",
        "TellSubspace": "covey.methods.pacfl:TellSubspace",
        "TellMoments": "covey.methods.flux:TellMoments",
        "TellGradient": "covey.methods.cflgp:TellGradient",
        "TellLosses": "covey.methods.feddrift:TellLosses",
        "Predict": "covey.methods.flis:Predict",
        "SoftTrain": "covey.methods.fedsoft:SoftTrain",
        "ResponsibleTrain": "covey.methods.fedrc:ResponsibleTrain",
        "TrainWithCourse": "covey.methods.fedgwc:TrainWithCourse",
        "MoreauTrain": "covey.methods.pfedme:MoreauTrain",
        "MixtureTrain": "covey.methods.apfl:MixtureTrain",
        "MetaTrain": "covey.methods.per_fedavg:MetaTrain",
        "LocalAggregationTrain": "covey.methods.fedala:LocalAggregationTrain",
        "TrainNearCloud": "covey.methods.fedamp:TrainNearCloud",
        "TellDiscrepancy": "covey.methods.feddisco:TellDiscrepancy",
        "Best": "covey.methods.ifca:Best",
        "TrainAutoencoder": "covey.methods.embedding.pretraining:TrainAutoencoder",
    },
)

# settings -> a rule that combines replies, some of which may be hostile
RULES: Registry[Callable[..., Rule]] = Registry(
    "robust combine",
    "covey.rules",
    {
        "median": "covey.parts.mix.robust:Median",
        "trimmed-mean": "covey.parts.mix.robust:TrimmedMean",
        "krum": "covey.parts.mix.robust:Krum",
        "clip": "covey.parts.mix.robust:Clip",
        "spectral": "covey.parts.mix.detect:Spectral",
        "cosine": "covey.parts.mix.detect:Cosine",
    },
)
