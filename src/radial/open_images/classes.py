"""What is known about classes: published subsets, ImageNet-1K synonyms, overlaps, folder names."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from radial.checks import DataError
from radial.open_images.rows import FORBIDDEN, LONGEST, folded, folder_fault

PUBLISHED = {10: 4073, 30: 1414, 50: 748, 70: 463, 100: 345}  # images a class, by classes
PRESETS = {f"oiv7-{classes}": (classes, images) for classes, images in PUBLISHED.items()}

# Any two of a group overlap: at most one of them is taken.
SAME_PICTURES = (
    (
        "Person", "Man", "Woman", "Boy", "Girl", "Human body", "Human face", "Human head",
        "Human hair", "Human eye", "Human ear", "Human nose", "Human mouth", "Human beard",
        "Human hand", "Human arm", "Human leg", "Human foot",
    ),
    ("Wheel", "Tire", "Bicycle wheel"),
    ("Computer monitor", "Television"),
    ("Sofa bed", "Couch", "Studio couch", "Loveseat"),
    ("Cupboard", "Cabinetry", "Wardrobe", "Closet"),
    ("Light bulb", "Lamp"),
    ("Mug", "Coffee cup"),
    ("Platter", "Plate"),
)  # fmt: skip

# A class and those that are a kind or a part of it. What holds for a kind holds for its kinds:
# Taxi overlaps with Car, Land vehicle and Vehicle, not with Truck.
KINDS_AND_PARTS = {
    "Animal": (
        "Mammal", "Bird", "Fish", "Reptile", "Invertebrate", "Insect", "Frog", "Marine mammal",
        "Carnivore", "Shellfish", "Spider", "Worm",
    ),
    "Mammal": (
        "Carnivore", "Marine mammal", "Cat", "Dog", "Horse", "Cattle", "Sheep", "Goat", "Pig",
        "Elephant", "Giraffe", "Zebra", "Deer", "Antelope", "Monkey", "Rabbit", "Hamster",
        "Mouse", "Squirrel", "Camel", "Kangaroo", "Koala", "Panda", "Bat", "Hedgehog", "Mule",
        "Rhinoceros", "Hippopotamus", "Bull", "Alpaca", "Sloth", "Porcupine", "Armadillo",
    ),
    "Carnivore": (
        "Cat", "Dog", "Bear", "Lion", "Tiger", "Leopard", "Cheetah", "Jaguar", "Lynx", "Fox",
        "Otter", "Raccoon", "Skunk", "Red panda", "Brown bear", "Polar bear",
    ),
    "Bear": ("Brown bear", "Polar bear"),
    "Marine mammal": ("Dolphin", "Whale", "Seal", "Sea lion", "Harbor seal", "Walrus"),
    "Seal": ("Sea lion", "Harbor seal"),
    "Bird": (
        "Duck", "Goose", "Swan", "Eagle", "Falcon", "Owl", "Parrot", "Penguin", "Sparrow",
        "Magpie", "Raven", "Woodpecker", "Blue jay", "Canary", "Chicken", "Turkey", "Ostrich",
    ),
    "Fish": ("Goldfish", "Shark", "Rays and skates", "Seahorse"),
    "Reptile": ("Snake", "Lizard", "Turtle", "Crocodile", "Dinosaur", "Tortoise", "Sea turtle"),
    "Turtle": ("Tortoise", "Sea turtle"),
    "Invertebrate": (
        "Insect", "Marine invertebrates", "Spider", "Tick", "Centipede", "Worm", "Snail",
        "Scorpion",
    ),
    "Marine invertebrates": (
        "Shellfish", "Starfish", "Jellyfish", "Squid", "Isopod", "Shrimp", "Lobster", "Crab",
    ),
    "Shellfish": ("Oyster", "Lobster", "Shrimp", "Crab"),
    "Insect": (
        "Bee", "Beetle", "Butterfly", "Ant", "Dragonfly", "Ladybug", "Caterpillar",
        "Moths and butterflies",
    ),
    "Moths and butterflies": ("Butterfly", "Caterpillar"),
    "Beetle": ("Ladybug",),
    "Vehicle": (
        "Land vehicle", "Watercraft", "Aircraft", "Boat", "Airplane", "Helicopter", "Submarine",
        "Wheel", "Tire", "Vehicle registration plate",
    ),
    "Land vehicle": (
        "Car", "Bus", "Truck", "Motorcycle", "Bicycle", "Train", "Tank", "Cart", "Golf cart",
        "Segway", "Unicycle", "Snowmobile", "Wheelchair", "Ambulance", "Wheel", "Tire",
        "Vehicle registration plate",
    ),
    "Car": (
        "Limousine", "Taxi", "Van", "Ambulance", "Wheel", "Tire", "Vehicle registration plate",
    ),
    "Motorcycle": ("Wheel", "Tire"),
    "Truck": ("Wheel", "Tire"),
    "Bicycle": ("Bicycle wheel", "Wheel", "Tire"),
    "Watercraft": ("Boat", "Submarine", "Barge", "Canoe", "Gondola", "Jet ski", "Surfboard"),
    "Boat": ("Barge", "Canoe", "Gondola"),
    "Aircraft": ("Airplane", "Helicopter", "Rocket"),
    "Plant": (
        "Tree", "Flower", "Houseplant", "Palm tree", "Willow", "Maple", "Grape", "Mushroom",
    ),
    "Tree": ("Palm tree", "Christmas tree", "Willow", "Maple"),
    "Flower": ("Rose", "Lily", "Common sunflower", "Lavender (Plant)"),
    "Houseplant": ("Flowerpot",),
    "Building": (
        "House", "Tower", "Skyscraper", "Office building", "Castle", "Lighthouse", "Tree house",
        "Convenience store", "Window", "Door", "Stairs", "Porch",
    ),
    "House": ("Window", "Door", "Porch"),
    "Door": ("Door handle",),
    "Furniture": (
        "Chair", "Table", "Couch", "Bed", "Desk", "Bench", "Stool", "Shelf", "Bookcase",
        "Cabinetry", "Cupboard", "Wardrobe", "Closet", "Drawer", "Chest of drawers",
        "Nightstand", "Filing cabinet", "Countertop", "Sofa bed", "Loveseat", "Infant bed",
        "Coffee table", "Kitchen & dining room table", "Studio couch", "Wine rack",
    ),
    "Table": ("Desk", "Coffee table", "Kitchen & dining room table"),
    "Bed": ("Infant bed", "Sofa bed", "Dog bed"),
    "Chest of drawers": ("Drawer",),
    "Clothing": (
        "Dress", "Shirt", "Jeans", "Trousers", "Shorts", "Skirt", "Miniskirt", "Suit", "Coat",
        "Jacket", "Swimwear", "Brassiere", "Footwear", "Sock", "Hat", "Helmet", "Scarf", "Tie",
        "Glove", "Belt", "Sports uniform", "Fashion accessory", "Sun hat", "Fedora", "Sombrero",
        "Cowboy hat", "High heels", "Boot", "Sandal", "Umbrella",
    ),
    "Trousers": ("Jeans",),
    "Skirt": ("Miniskirt",),
    "Footwear": ("High heels", "Boot", "Sandal", "Roller skates"),
    "Hat": ("Sun hat", "Fedora", "Sombrero", "Cowboy hat"),
    "Helmet": ("Bicycle helmet", "Football helmet"),
    "Glove": ("Baseball glove", "Boxing glove"),
    "Fashion accessory": (
        "Necklace", "Earrings", "Sunglasses", "Glasses", "Goggles", "Handbag", "Watch", "Crown",
        "Tiara", "Hat", "Scarf", "Tie", "Belt", "Glove", "Hair accessory",
    ),
    "Food": (
        "Fast food", "Fruit", "Vegetable", "Dessert", "Baked goods", "Seafood", "Snack", "Salad",
        "Sushi", "Pasta", "Pizza", "Hamburger", "Hot dog", "Sandwich", "Cake", "Bread", "Cheese",
        "Egg (Food)", "Taco", "Burrito", "French fries", "Cookie", "Ice cream", "Candy",
        "Doughnut", "Muffin", "Pastry", "Croissant", "Bagel", "Pancake", "Waffle", "Popcorn",
    ),
    "Fast food": ("Pizza", "Hamburger", "Hot dog", "French fries", "Sandwich", "Taco", "Burrito"),
    "Dessert": ("Cake", "Ice cream", "Cookie", "Muffin", "Doughnut", "Candy", "Waffle"),
    "Baked goods": (
        "Bread", "Pastry", "Croissant", "Bagel", "Muffin", "Cookie", "Cake", "Doughnut", "Tart",
        "Pretzel",
    ),
    "Seafood": ("Shrimp", "Lobster", "Crab", "Oyster", "Squid", "Shellfish"),
    "Fruit": (
        "Apple", "Orange", "Banana", "Strawberry", "Lemon", "Grape", "Pineapple", "Watermelon",
        "Peach", "Pear", "Mango", "Pomegranate", "Grapefruit", "Cantaloupe", "Common fig",
        "Tomato", "Citrus",
    ),
    "Vegetable": (
        "Tomato", "Carrot", "Potato", "Broccoli", "Cabbage", "Cucumber", "Bell pepper",
        "Zucchini", "Pumpkin", "Squash (Plant)", "Radish", "Artichoke", "Asparagus (Vegetable)",
        "Garden Asparagus", "Winter melon", "Mushroom",
    ),
    "Drink": ("Beer", "Wine", "Coffee", "Juice", "Tea", "Cocktail", "Milk"),
    "Bottle": ("Wine bottle", "Beer bottle", "Wine", "Beer"),
    "Tableware": (
        "Plate", "Platter", "Bowl", "Mug", "Coffee cup", "Saucer", "Wine glass", "Teapot",
        "Fork", "Knife", "Spoon", "Chopsticks", "Bottle", "Pitcher (Container)", "Tea",
    ),
    "Musical instrument": (
        "Guitar", "Piano", "Violin", "Cello", "Drum", "Flute", "Trumpet", "Trombone", "Harp",
        "Saxophone", "Accordion", "Banjo", "Harmonica", "Oboe", "French horn", "Musical keyboard",
        "Organ (Musical Instrument)",
    ),
    "Sports equipment": (
        "Ball", "Football", "Tennis ball", "Golf ball", "Volleyball (Ball)", "Rugby ball",
        "Surfboard", "Skateboard", "Snowboard", "Ski", "Paddle", "Tennis racket", "Racket",
        "Baseball bat", "Cricket ball", "Bowling equipment", "Dumbbell", "Balance beam",
    ),
    "Ball": ("Football", "Tennis ball", "Golf ball", "Volleyball (Ball)", "Rugby ball"),
    "Weapon": (
        "Handgun", "Rifle", "Shotgun", "Sword", "Knife", "Cannon", "Missile", "Bow and arrow",
        "Axe", "Dagger", "Tank",
    ),
    "Toy": ("Doll", "Teddy bear", "Balloon", "Kite", "Dice", "Flying disc"),
    "Home appliance": (
        "Washing machine", "Dishwasher", "Refrigerator", "Oven", "Microwave oven", "Toaster",
        "Blender", "Mixer", "Kettle", "Coffeemaker", "Gas stove", "Sewing machine", "Heater",
        "Mechanical fan", "Ceiling fan", "Humidifier", "Wood-burning stove", "Hair dryer",
    ),
    "Computer": (
        "Laptop", "Tablet computer", "Computer keyboard", "Computer mouse", "Computer monitor",
    ),
    "Telephone": ("Mobile phone", "Corded phone"),
    "Clock": ("Watch", "Alarm clock", "Digital clock", "Wall clock"),
}  # fmt: skip

# Names in Open Images of ImageNet-1K categories that torchvision lists under another synonym.
OTHER_SYNONYMS = (
    "Binoculars", "Brassiere", "Camel", "Candle", "Chainsaw", "Computer mouse",
    "Filing cabinet", "Golf cart", "Hair dryer", "Hot dog", "Infant bed", "Jeans", "Ladybug",
    "Lighthouse", "Microwave oven", "Mobile phone", "Organ (Musical Instrument)", "Pig",
    "Pitcher (Container)", "Polar bear", "Red panda", "Ruler", "Saxophone", "Sofa bed",
    "Sunglasses", "Swim cap", "Taxi", "Toilet paper", "Volleyball (Ball)",
    "Washing machine", "Waste container",
)  # fmt: skip


def preset_classes(name: str) -> tuple[int, int]:
    """Classes of a published subset and images a class.

    >>> preset_classes("oiv7-10")
    (10, 4073)
    """
    if name not in PRESETS:
        raise DataError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]


def in_imagenet(name: str) -> bool:
    """Whether a class name is, as a whole, a synonym of an ImageNet-1K category.

    Case, spaces and hyphens do not count. Dog is none: ImageNet-1K has breeds only.
    """
    return _bare(name) in _imagenet()


@lru_cache(maxsize=1)
def _imagenet() -> frozenset[str]:
    from torchvision.models import ResNet50_Weights

    listed = ResNet50_Weights.IMAGENET1K_V1.meta["categories"]
    return frozenset(map(_bare, (*listed, *OTHER_SYNONYMS)))


def _bare(name: str) -> str:
    return re.sub(r"[\s_'-]+", "", name).casefold()


def overlap(name: str, others: Iterable[str]) -> str | None:
    """The first of ``others`` that a class is a kind or part of, or the other way round.

    >>> overlap("Human face", ["Tree", "Person"]), overlap("Taxi", ["Truck", "Bus"])
    ('Person', None)
    """
    mine = _related().get(name.casefold(), frozenset())
    return next((other for other in others if other.casefold() in mine), None)


@lru_cache(maxsize=1)
def _related() -> dict[str, frozenset[str]]:
    """The classes that each class overlaps with, in lower case."""
    below = {
        wide.casefold(): {narrow.casefold() for narrow in all_narrow}
        for wide, all_narrow in KINDS_AND_PARTS.items()
    }
    pairs = set()
    for wide in below:
        reached: set[str] = set()
        ahead = [wide]
        while ahead:
            for narrow in below.get(ahead.pop(), set()) - reached:
                reached.add(narrow)
                ahead.append(narrow)
        pairs |= {(wide, narrow) for narrow in reached}
    for group in SAME_PICTURES:
        pairs |= {(a.casefold(), b.casefold()) for a in group for b in group}
    related: dict[str, set[str]] = {}
    for one, other in pairs:
        if one != other:
            related.setdefault(one, set()).add(other)
            related.setdefault(other, set()).add(one)
    return {name: frozenset(others) for name, others in related.items()}


def class_names(displays: Mapping[str, str]) -> dict[str, str]:
    """A name for each label that is a folder's name and nobody else's.

    Mostly the display name as it is. What cannot be in a folder's name becomes ``_``, and a very
    long one is cut. The label comes behind a name that several labels share (case and accents
    aside), that a name with its label has already, or that cannot be a folder's. It depends on
    the class list only, never on which classes are chosen.

    >>> class_names({"/m/01": "Jaguar", "/m/02": "jaguar", "/m/03": "AC/DC"})
    {'/m/01': 'Jaguar (m-01)', '/m/02': 'jaguar (m-02)', '/m/03': 'AC_DC'}
    """
    plain = {label: _folder(display) for label, display in displays.items()}
    labelled = {label for label, name in plain.items() if folder_fault(name) is not None}
    while True:
        names = {
            label: _with_label(name, label) if label in labelled else name
            for label, name in plain.items()
        }
        shared = Counter(map(folded, names.values()))
        more = {label for label, name in names.items() if shared[folded(name)] > 1} - labelled
        if not more:
            return names
        labelled |= more


def _folder(display: str) -> str:
    text = unicodedata.normalize("NFC", display)
    bad = f"/\\{FORBIDDEN}"
    text = "".join("_" if c in bad or not c.isprintable() else c for c in text)
    return _cut(" ".join(text.split()).lstrip(". "), LONGEST)


def _with_label(name: str, label: str) -> str:
    short = label.strip("/").replace("/", "-")
    behind = f" ({short})"
    name = _cut(name, LONGEST - len(behind.encode()))
    return f"{name}{behind}" if name else short


def _cut(name: str, size: int) -> str:
    """At most so many bytes, whole letters, and nothing at the end that a folder cannot end in."""
    return name.encode()[: max(0, size)].decode(errors="ignore").rstrip(". ")
