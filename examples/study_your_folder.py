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

import radial.study


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
    plan = {
        "name": "folder",
        "constants": settings,
        "methods": options.methods,
        "heads": ["default", "rbfn"],
        "seeds": list(range(options.seeds)),
        "score": {"view_images": 256},
    }
    result = radial.study.run(plan, out=options.out, workers=options.workers, threads=1)
    if result.failed:
        run, why = next(iter(result.failed.items()))
        parser.exit(1, f"{len(result.failed)} runs failed, such as {run}: {why}\n")

    if result.table["accuracy"].notna().any():
        columns = ["method", "pairs", "a_mean", "b_mean", "difference", "low", "high"]
        print("accuracy of rbfn (b) less that of default (a), with its 95 % interval")
        print(result.heads()[columns].to_string(index=False, float_format="{:.3f}".format))
    else:
        scores = ["view_retrieval@backbone", "lidar@projector", "rankme@backbone"]
        print(result.table.groupby(["method", "head"])[scores].mean().to_string())
    print(f"report: {result.report()}")


if __name__ == "__main__":
    main()
