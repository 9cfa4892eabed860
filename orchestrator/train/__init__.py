"""How one run trains: model, data, optimiser, schedule, callbacks. The only place that imports lightning."""
