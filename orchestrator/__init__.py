"""What runs and where: the only room that may import models, fitting and db."""
