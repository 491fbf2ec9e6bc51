"""The image that machines of the simulated rack boot: `python -m hack.nodeimage`, `make node-image`.

The scripts in `image-builder/provision` say what is on a machine; this package is their front end for Docker, Packer is
the other one (docs/how-to/build-node-images.md). `releases` says which programs make a version of Kubernetes,
`container_images` packs those that run in Pods into archives, `debian` makes the floor from the distribution's
packages, `build` puts all of it together and skips what has not changed, `register` notes what a rack is to be told.
"""
