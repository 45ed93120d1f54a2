"""Does an RBFN head help on my images? A small study of a folder, from Python.

Every method is trained with LightlySSL's head and with radial's, at the same seeds; each run is
evaluated with labels and scored without. What is printed: accuracy of the heads, paired by method
and seed. What is written: a directory with all runs, and one HTML report. Again after an
interruption, the study goes on where it was.

    python examples/study_your_folder.py                          # digits, as files: 2 minutes
    python examples/study_your_folder.py photos --methods simclr byol --epochs 50

The folder holds a folder a class (ten images each and eighty in all are the least), or train/,
val/ and test/ with such folders. Images without class folders will do as well: then heads are
compared by label-free scores only. Needs `pip install '.[study]'`.
"""

import argparse
from pathlib import Path

from rich.console import Console

from radial.data import load_data
from radial.study.analysis import paired_heads
from radial.study.executors import run_local, shares
from radial.study.plan import Study
from radial.study.report import write_report
from radial.study.results import read_runs
from radial.study.store import Store


def digits_as_files(root: Path) -> Path:
    """scikit-learn's 1,797 digits as image files, a folder a class."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target)):
        file = root / str(label) / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9).astype("uint8")).resize((16, 16)).save(file)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="by default: digits, written now")
    parser.add_argument("--out", type=Path, default=Path("studies/folder"))
    parser.add_argument("--methods", nargs="+", default=["simclr"])
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--backbone", default="resnet9-w0.125", help="or resnet18, timm:NAME, …")
    parser.add_argument("--workers", type=int, help="runs at a time; one a core, or a GPU")
    options = parser.parse_args()

    folder = options.folder or digits_as_files(options.out.parent / "digits")
    settings = {
        "data": f"folder:{folder}",
        "image_size": options.image_size,
        "backbone": options.backbone,
        "epochs": options.epochs,
    }
    labelled = bool(load_data(settings["data"], image_size=options.image_size).classes)
    study = Study(
        name="folder",
        constants=settings,
        methods={method: {} for method in options.methods},
        heads={"default": {}, "rbfn": {}},
        seeds=list(range(options.seeds)),
        evaluate={} if labelled else None,
        score={"view_images": 256},
    )

    store, console = Store(options.out.resolve()), Console(width=120, highlight=False)
    store.create(study)
    workers, threads = shares(options.workers, 1, len(study.runs()))  # one thread each
    console.print(f"{len(study.runs())} runs, {workers} at a time, in {store.path}", soft_wrap=True)
    states = run_local(store, workers=workers, threads=threads, console=console)
    if failed := [state for state in states if state.state == "failed"]:
        parser.exit(1, f"{len(failed)} runs failed, such as {failed[0].run.id}: {failed[0].note}\n")

    runs = read_runs(store.path)
    if labelled:
        columns = ["method", "pairs", "a_mean", "b_mean", "difference", "low", "high"]
        print("accuracy of rbfn (b) less that of default (a), with its 95 % interval")
        print(paired_heads(runs)[columns].to_string(index=False, float_format="{:.3f}".format))
    else:
        scores = ["view_retrieval@backbone", "lidar@projector", "rankme@backbone"]
        print(runs.groupby(["method", "head"])[scores].mean().to_string())
    print("\n".join(write_report(store.path, html=options.out / "report.html")))


if __name__ == "__main__":
    main()
