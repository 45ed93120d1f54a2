"""Do kernels know what they were not trained on, and do they group images? A side test.

    radial train --method simclr --head rbfn --data folder:CIFAR --backbone resnet9-w0.125 \\
      --image-size 32 --epochs 10 --seed 0 --out runs/0        # and seeds 1 and 2
    python studies/outliers.py runs/0 runs/1 runs/2 --data folder:CIFAR --other folder:TINY \\
      --out docs/findings/outliers/results.parquet

Outliers: the test images of the set a run was trained on against those of another set, by the area
under the ROC curve of

* **kernels**: the scaled distance ε_k ‖x − c_k‖ to the nearest kernel of the projection head;
* **Mahalanobis**: distance to the mean of the training features in their covariance, as in SSD
  (Sehwag et al., 2021, https://arxiv.org/abs/2103.12051) with one cluster, features of unit length;
* **kNN**: 1 − cosine to the tenth nearest training image (Sun et al., 2022,
  https://arxiv.org/abs/2204.06507).

Groups: adjusted mutual information with the labels of the test images of which kernel is nearest,
and of k-means with as many clusters, of what the kernels see and of the backbone's features.
Registered: a feature is built only if kernels win on every run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd
import torch
from sklearn.metrics import adjusted_mutual_info_score, roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from radial.data import Images, load_data
from radial.evaluation.features import extract_layers
from radial.metrics.clusters import kmeans
from radial.scoring.score import before_kernels
from radial.scoring.targets import build, find

NEIGHBOUR = 10


def mahalanobis(train: Tensor, test: Tensor) -> Tensor:
    """(n) squared distances of unit vectors to the training mean."""
    train, test = (F.normalize(z.double(), dim=1) for z in (train, test))
    ridge = 1e-6 * torch.eye(train.shape[1], dtype=torch.float64)
    centred = test - train.mean(0)
    return (centred * torch.linalg.solve(torch.cov(train.T) + ridge, centred.T).T).sum(1)


def kth_neighbour(train: Tensor, test: Tensor) -> Tensor:
    """(n) 1 − cosine to the tenth nearest training image."""
    cosines = F.normalize(test, dim=1) @ F.normalize(train, dim=1).T
    return 1.0 - cosines.topk(NEIGHBOUR, dim=1).values[:, -1]


@torch.no_grad()
def of_run(path: str, data: str, other: str) -> dict[str, float]:
    target = find(path)
    size = target.image_size
    network = build(target, image_size=size)
    facts = {"mean": torch.tensor(target.facts["mean"]), "std": torch.tensor(target.facts["std"])}

    def features(images: Images) -> Tensor:
        return extract_layers(network.backbone, None, images, image_size=size, **facts).backbone

    own, foreign = load_data(data, image_size=size), load_data(other, image_size=size)
    train, inside, outside = (features(part) for part in (own.train, own.test, foreign.test))
    test = torch.cat([inside, outside])
    is_outside = torch.cat([torch.zeros(len(inside)), torch.ones(len(outside))])
    layer, x = before_kernels(network.projection_head.eval(), test)
    scaled = layer.shapes * torch.cdist(x, layer.centers)
    nearest = scaled.min(dim=1)
    scores = {
        "outliers: kernels": nearest.values,
        "outliers: Mahalanobis": mahalanobis(train, test),
        "outliers: kNN": kth_neighbour(train, test),
    }
    found = {name: float(roc_auc_score(is_outside, score)) for name, score in scores.items()}
    labels, count = own.test.labels, len(layer.centers)
    n = len(inside)
    groups = {
        "groups: kernels": nearest.indices[:n],
        "groups: k-means of their input": kmeans(x[:n], clusters=count, shuffle=False).labels,
        "groups: k-means of the backbone": kmeans(inside, clusters=count, shuffle=False).labels,
    }
    for name, group in groups.items():
        found[name] = float(adjusted_mutual_info_score(labels, group))
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--data", required=True, help="what the runs were trained on")
    parser.add_argument("--other", required=True, help="where outliers come from")
    parser.add_argument("--out", type=Path, required=True, help="such as results.parquet")
    options = parser.parse_args(arguments)
    rows = [{"run": run, **of_run(run, options.data, options.other)} for run in options.runs]
    table = pd.DataFrame(rows)
    print(table.set_index("run").T.round(3).to_string())
    table.assign(run=[Path(run).name for run in options.runs]).to_parquet(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
