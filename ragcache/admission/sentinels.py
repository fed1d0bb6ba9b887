"""Questions of many kinds that have nothing to do with each other.

A stored question that is near many of them is near everything: a hub, made to come up whatever
is asked (HubScan, arXiv 2602.22427). Written for this project.
"""

from __future__ import annotations

SENTINELS = (
    "How tall is the highest mountain in the world?",
    "Which vitamins are in an orange?",
    "How do I change the oil of a car?",
    "Who painted the ceiling of a famous chapel?",
    "What is the boiling point of nitrogen?",
    "How can a child learn to play the violin?",
    "When does the last train to the airport leave?",
    "What is a binary search tree?",
    "Which side of the road do people drive on in Japan?",
    "How much notice must a tenant give?",
    "Why do leaves turn red in autumn?",
    "What does a notary charge for a will?",
    "How is cheese made from goat milk?",
    "Can dogs eat grapes?",
    "What is the offside rule in football?",
    "How do I renew a passport?",
    "Which planets have rings?",
    "How long does paint need to dry?",
    "What is the interest on a mortgage?",
    "Who wrote the first detective novel?",
    "How do vaccines work?",
    "What is the capital of Peru?",
    "How do I remove a stain from a carpet?",
    "Which database supports full text search?",
    "What is the warranty of a washing machine?",
    "How many players are in an orchestra?",
    "When was the printing press invented?",
    "Is a contract valid without a signature?",
    "How do I tie a sailing knot?",
    "What causes an earthquake?",
    "Which plants grow in the shade?",
    "How is overtime paid on Sundays?",
    "What is the meaning of a yellow traffic light?",
    "How do I export a report as a spreadsheet?",
    "Which flour is best for bread?",
    "How fast does light travel?",
    "What is an appendix in the human body?",
    "How are stocks different from bonds?",
    "Where do penguins live?",
    "How do I reset a router?",
)
