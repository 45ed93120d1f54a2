from image_folders import cache, make_folder

__all__ = ["cache", "make_folder"]
